"""What a provider is held against: the same checks for every one, ours and anybody's (docs/providers/contract.md).

``fields``   every field of a deployment changes what is written, or is refused, or is named
``digests``  what a released transformer writes stays as it is
``hostile``  what a user writes arrives as data, or is refused
``checks``   what is wrong with an installed provider, as ``airunway provider check`` says it
``roles``    the roles of a provider as the template of a chart
"""
