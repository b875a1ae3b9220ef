"""The revisions, in the order of their names. A revision that was released is never changed."""
