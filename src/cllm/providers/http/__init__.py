"""HTTP transports, and the base class of providers that use them."""
