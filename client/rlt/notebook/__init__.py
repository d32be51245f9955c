"""A job that is followed in a notebook: HTML and SVG without a script. The page of a run is in rlt_ui."""
