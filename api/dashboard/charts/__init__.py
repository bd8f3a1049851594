"""Charts: said once as data (``chart.py``), drawn here as SVG (``drawing.py``), and zoomed in the browser by Plotly."""
