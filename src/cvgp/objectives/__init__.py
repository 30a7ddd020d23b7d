"""What an optimiser evaluates: a bound with its gradient, over a minibatch or over all rows."""
