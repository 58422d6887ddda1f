"""Sheets and ropes: elastic triangles and segments, moved by implicit Euler (docs/derivations/cloth.md)."""
