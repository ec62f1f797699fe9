"""What several formats share: tables of records, images, chats, calls of tools."""
