// The entry module of the page.
