"""The revisions, one file each; ``db.revisions`` lists them."""
