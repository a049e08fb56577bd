"""The dashboard and its API: what a browser, a script or Prometheus asks of a cluster."""
