"""Sends what needs attention to people, by webhooks and Slack, without Prometheus."""
