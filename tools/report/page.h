// The page of `trireme report`: page.html, compiled into the binary.
#pragma once

namespace trireme {

extern const char* const page_html;

}  // namespace trireme
