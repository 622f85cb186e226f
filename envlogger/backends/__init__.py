"""Where recorded steps go to and come from: storage backends, and when to use them."""
