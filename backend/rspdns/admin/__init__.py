"""The administrator's side over HTTP: API, event stream, metrics and the live page."""
