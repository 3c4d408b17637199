"""A small real bot to try the library on: ordering a pizza, in the terminal or in the browser."""
