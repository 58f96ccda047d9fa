"""The lab `rspdns-lab discover`: clients that keep a list of servers out of DNS."""
