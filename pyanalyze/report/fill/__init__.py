"""One module for each part of the contract; :mod:`pyanalyze.report.build` puts the parts together.

What is null has its reason: functions that take ``missing`` add it there.
"""
