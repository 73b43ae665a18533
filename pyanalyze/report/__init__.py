"""Reports: the JSON contract filled from results, and the HTML, Markdown and text made of it."""
