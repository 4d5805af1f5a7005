"""What a provider is held against: the same checks for every one, ours and anybody's (docs/providers/contract.md).

``fields``   every field of a deployment changes what is written, or is refused, or is named
``digests``  what a released transformer writes stays as it is
``hostile``  what a user writes arrives as data, or is refused
``rules``    the rules of the contract, by id
``checks``   which of them an installed provider breaks, as ``airunway provider check`` says it
``works``    whether what is written can work; ``statuses``, ``purity``: what hooks make of statuses, and of the world
``report``   what was found, as JSON, JUnit and a page; ``cluster``: the rules that need an API server
``roles``    the roles of a provider as the template of a chart
"""
