"""The generated parts of pages.

Each part is a function of the page's folder and of the word behind the part's name, or None; it
returns the text. PARTS in lab/pages/readmes.py has them all.
"""
