"""Robot descriptions: file formats and shipped robots become a Tree, and a Tree becomes a Model."""
