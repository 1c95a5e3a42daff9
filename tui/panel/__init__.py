"""The panel: an app over the board of one host. Screens and widgets read the board and know `protocol.Panel`, not the app."""
