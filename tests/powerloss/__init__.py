"""Power loss and failing disks under SQLite: what reaches the disk is recorded, cut off anywhere, opened."""
