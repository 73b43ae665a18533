"""Two runs side by side: was the work equal, and where did the change of its time come from?"""
