"""A small web shop with login, search, cart, orders and an admin side, to try web agents and their graders on."""
