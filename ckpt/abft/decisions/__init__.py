"""Who does what: the distribution, the operations of a step, the ways of a panel, and what all decide after a death."""
