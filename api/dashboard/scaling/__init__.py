"""The page that shows how one question scales: the best plan at each of many device counts."""
