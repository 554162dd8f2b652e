"""Dead letters of a sink: the records that a store refused, and the records that wait behind them."""
