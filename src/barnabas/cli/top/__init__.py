"""`barnabas top`: a live view of one node or several, from the metrics that they tell.

- `samples`: asks nodes for their metrics, and reads them.
- `figures`: what is shown, from two sets of samples.
- `screen`: figures as a picture that fills a terminal of any size.
- `top_command`: the command line, the clock, and a terminal that is left as it was.
"""
