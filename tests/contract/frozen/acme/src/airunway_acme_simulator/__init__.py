"""A simulated Acme operator: it makes a Deployment of each AcmeServer, and says how that is."""
