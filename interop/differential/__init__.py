"""The same sequence of requests to a node of Barnabas and to Apache Kafka: every answer has to be the same.

    python -m interop.differential --seeds 4 --requests 5000    # the first difference, in the shortest sequence
    python -m interop.differential --all                        # one example of every kind

What is sent is made up by Hypothesis: `sequences` has themes, and what they begin with; `requests` fills in the fields
of a message from its schema; `pools` knows which names and numbers make sense in a field, and which do not; `chance` is
where each draw is made. Requests have `references` in the places of ids, which the `memory` of each side replaces.

`running` sends each request to both `sides` and waits for both answers, which `canonical` makes comparable, and
`comparison` compares, field by field. `allowed` is the list of what may differ. `campaign` does all this by the
thousand, and `report` shows a sequence to people.
"""
