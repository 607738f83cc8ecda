"""Tables and figures of runs: in the terminal, in files, and as one self-contained page.

``terminal`` prints, ``export`` writes files, ``figures`` draws, ``html`` writes the page. The report reads runs
through `assay.core` and knows no benchmark by name.
"""
