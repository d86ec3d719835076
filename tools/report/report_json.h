// Documents of `trireme report`: runs, a study or a search as JSON. page.html draws them.
#pragma once
#include <string>
#include <vector>

#include "framework/io/json.h"
#include "tools/report/run_data.h"
#include "tools/report/study_data.h"
#include "tools/study/tune_result.h"

namespace trireme {

/// Every document has kind (runs, study or search), title, synthetic, warnings, and rows: a list with an object per run
/// or trial. Unknown numbers are null; infinite numbers, such as a time to a target that was never reached, are "inf".
Json json_of(std::vector<RunData>);
Json json_of(const StudyData&);
Json json_of(const TuneResult&);

/// page.html with the document inside. It loads nothing else.
std::string report_page(const Json& document);
/// The document's rows as a table: a column per number and text, those inside of objects as "settings.optim.lr".
std::string report_csv(const Json& document);
/// Writes a page, JSON or CSV by the ending of the file's name. Throws Error for another ending.
void write_report(const Json& document, const std::string& to);

}  // namespace trireme
