"""Two runs side by side: was the work equal, and where did the change of its time come from?"""

from pyanalyze.comparison.compare import compare, compare_reports
from pyanalyze.comparison.model import Change, Comparison, Part, TenantChange

__all__ = ["Change", "Comparison", "Part", "TenantChange", "compare", "compare_reports"]
