"""Conversions between Python values and the stored protocol buffers."""
