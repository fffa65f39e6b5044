"""What is looked at before a transfer begins. It changes nothing on either side."""
