"""The part of the core's process that makes routes: HTTPRoutes, InferencePools and endpoint pickers."""
