"""The robots that ship with Pullback, one file each, written as tables of numbers."""
