"""A page for each learner: what they wrote, what each check said, and the points."""

from collections import defaultdict
from pathlib import Path

import jinja2

from qkv._files import write_whole
from qkv.grading.results import GRADED, Result, file_name

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Feedback for {{ learner }}</title>
<style>
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 50rem; margin: auto; padding: 1rem }
pre { overflow-x: auto; background: #8882; padding: .5rem }
.line { border-left: .3rem solid; padding-left: .5rem; overflow-wrap: anywhere }
.passed { border-color: #009E73 }
.not { border-color: #D55E00 }
:root { color-scheme: light dark }
</style>
</head>
<body>
<h1>Feedback for {{ learner }}</h1>
{% for result in results %}
<h2>{{ result.notebook or result.path }}</h2>
{% if result.status != graded %}
<p>Not graded: {{ result.status }}. {{ result.reason if result.status != fault else
"Your instructor has been told." }}</p>
{% else %}
<p>{{ "%g" | format(result.points) }} of {{ "%g" | format(result.maximum) }} points.</p>
{% for remark in result.remarks %}<p>{{ remark }}</p>
{% endfor %}
{% for outcome in result.outcomes %}
<h3>{{ outcome.name }}: {{ "%g" | format(outcome.points) }}
of {{ "%g" | format(outcome.maximum) }}</h3>
{% if outcome.name in result.answers %}
<pre tabindex="0"><code>{{ result.answers[outcome.name] }}</code></pre>
{% endif %}
<p class="line {{ "passed" if outcome.status == "passed" else "not" }}">{{ outcome.line }}</p>
{% endfor %}
{% endif %}
{% endfor %}
</body>
</html>
"""


def write(folder: Path, results: list[Result]) -> None:
    """Write every learner's page, and remove those of learners who are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    template = jinja2.Environment(autoescape=True, trim_blocks=True).from_string(PAGE)
    learners: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        learners[result.learner, result.platform_id].append(result)
    for old in [*folder.glob("*.html"), *folder.glob(".*.tmp")]:
        old.unlink()
    for who, group in learners.items():
        text = template.render(
            learner=who[0],
            results=group,
            graded=GRADED,
            fault="grader's fault",
        )
        write_whole(folder / f"{file_name(*who)}.html", text.encode("utf-8", "replace"))
