"""What requests and answers look like on the wire. Neither is a class of the store or of the search."""
