"""`airunway install`: helm brings the charts that the wheels carry; here is what has to be known before it does."""
