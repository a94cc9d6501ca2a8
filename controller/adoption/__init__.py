"""The ranks of a controller that is lost go on under the next one: what hosts know of their ranks, and who may go on."""
