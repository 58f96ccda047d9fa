"""`rspdns-lab voip`: thousands of synthetic calls, and two stateful firewalls in their path."""
