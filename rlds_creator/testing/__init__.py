"""What tests play."""
