"""Views: their SQL files, their plans, their versions."""
