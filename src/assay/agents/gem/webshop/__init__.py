"""WebShop: find and buy what an instruction asks for, in a shop of text pages."""
