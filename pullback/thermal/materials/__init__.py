"""Shipped materials, one file for each alloy: numbers and where they come from."""
