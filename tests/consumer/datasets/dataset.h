// A file of the user's own, named like one of Trireme's.
#pragma once
inline int own_steps() { return 3; }
