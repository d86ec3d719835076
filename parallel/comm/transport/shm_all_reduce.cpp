#include "parallel/comm/transport/shm_all_reduce.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <exception>
#include <thread>

#include "kernels/core/runtime.h"
#include "parallel/comm/reduce.h"

namespace trireme {
namespace {

constexpr Index shared_piece_bytes = 256 << 10, chunk_bytes = 32 << 10, direct_chunk_bytes = 128 << 10;
constexpr std::size_t line = 64;

int slots_for(int ranks) {
  return static_cast<int>(std::clamp<Index>((32 << 20) / (ranks * shared_piece_bytes), 4, 32));
}

}  // namespace

// Counters of a slot. A rank that enters increments `arrived`. The last one compares the calls and sets `matched` if
// they are equal; no rank continues before that. A rank that takes a chunk increments `next`, after reducing it
// `finished`, and after copying the result out `left`. The last rank to leave resets the counters and opens the next
// round.
struct alignas(line) ShmAllReduce::Slot {
  std::atomic<std::uint64_t> round;
  std::atomic<int> arrived, matched, next, finished, left;
};
struct alignas(line) ShmAllReduce::Head {
  std::atomic<std::uint32_t> futex_word, sleepers;
  std::atomic<std::uint32_t> deserter;  // 1 + a rank that destroyed its communicator with an operation in progress
};

bool AbortFlag::raise(const AbortReason& why) {
  if (on()) return false;
  const std::uint32_t mine = writers.fetch_add(1);
  if (mine < texts) {
    std::strncpy(reasons[mine], why.text.c_str(), sizeof reasons[mine] - 1);
    kinds[mine] = why.kind;
  }
  std::uint32_t off = 0;
  return state.compare_exchange_strong(off, mine + 1);
}

AbortReason AbortFlag::reason() const {
  const std::uint32_t n = state;
  if (n == 0) return {};
  return n <= texts ? AbortReason{reasons[n - 1], kinds[n - 1]} : AbortReason{"an error on another rank"};
}

void AbortFlag::check(const std::string& what) const {
  if (on()) fail_ended(what, reason());
}

bool ProcessToken::reachable() const {
  std::uint64_t got = 0;
  iovec here{&got, sizeof got}, there{const_cast<std::uint64_t*>(where), sizeof got};
  return where && process_vm_readv(process, &here, 1, &there, 1, 0) == sizeof got && got == value;
}

void ShmAllReduces::add(ShmAllReduce* shm) {
  std::lock_guard lock(mutex_);
  shm_reduces_.push_back(shm);
}
void ShmAllReduces::remove(ShmAllReduce* shm) {
  std::lock_guard lock(mutex_);
  std::erase(shm_reduces_, shm);
}
bool ShmAllReduces::advance(const ShmAllReduce* except) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return true;  // another thread is doing it
  bool busy = false;
  for (ShmAllReduce* shm : shm_reduces_)
    if (shm != except && shm->busy_) {
      busy = true;
      shm->advance_unless_busy();
    }
  return busy;
}

// Layout: head | slots | entries, slots x ranks | stages, ranks x slots
std::size_t ShmAllReduce::bytes(int ranks) {
  const std::size_t slots = slots_for(ranks);
  return sizeof(Head) + slots * (sizeof(Slot) + ranks * sizeof(Entry) + ranks * shared_piece_bytes) + line;
}

ShmAllReduce::ShmAllReduce(SharedMemory memory, AbortFlag& abort_flag, std::shared_ptr<ShmAllReduces> shm_reduces,
                           int rank, int size, const ProcessToken& token)
    : shared_(std::move(memory)),
      memory_(static_cast<char*>(shared_.data())),
      abort_flag_(abort_flag),
      shm_reduces_(std::move(shm_reduces)),
      rank_(rank),
      size_(size),
      slots_(slots_for(size)),
      spins_(size <= cores() ? 60 : 0),
      token_(token) {
  shm_reduces_->add(this);
}

// After an error other ranks may still write to the tensors of unfinished operations. Their memory is never reused.
ShmAllReduce::~ShmAllReduce() {
  shm_reduces_->remove(this);
  std::erase_if(pieces_, [](auto& p) { return p->chunks == 0; });
  if (pieces_.empty()) return;
  head().deserter = static_cast<std::uint32_t>(rank_ + 1);
  wake_waiters();
  if (direct()) new std::deque<std::shared_ptr<Piece>>(std::move(pieces_));
}

bool ShmAllReduce::takes(const Call& call) const {
  switch (call.kind) {
    case CallKind::all_reduce:
    case CallKind::barrier:
    case CallKind::split: return true;
    case CallKind::all_gather:
      return call.counts_digest == 0 && call.count > 0 &&
             (direct() || call.count / size_ * size_of(call.type) <= shared_piece_bytes);
    case CallKind::reduce_scatter: return call.counts_digest == 0 && direct();
    default: return false;
  }
}

bool ShmAllReduce::direct(const Call& call) const {
  if (!direct()) return false;
  const Index bytes = call.count * size_of(call.type);
  switch (call.kind) {
    case CallKind::reduce_scatter: return true;
    case CallKind::all_gather: return bytes / size_ > shared_piece_bytes;
    case CallKind::all_reduce: return bytes > shared_piece_bytes;
    default: return false;
  }
}

ShmAllReduce::Slot& ShmAllReduce::slot(std::uint64_t i) const {
  return reinterpret_cast<Slot*>(memory_ + sizeof(Head))[i % slots_];
}
ShmAllReduce::Entry& ShmAllReduce::entry(int rank, std::uint64_t i) const {
  auto* entries = reinterpret_cast<Entry*>(memory_ + sizeof(Head) + slots_ * sizeof(Slot));
  return entries[(i % slots_) * size_ + rank];
}
char* ShmAllReduce::stage(int rank, std::uint64_t i) const {
  std::size_t at = sizeof(Head) + slots_ * (sizeof(Slot) + size_ * sizeof(Entry));
  at = (at + line - 1) / line * line;
  return memory_ + at + (static_cast<std::size_t>(rank) * slots_ + i % slots_) * shared_piece_bytes;
}

void ShmAllReduce::wake_waiters() {
  head().futex_word.fetch_add(1);
  if (head().sleepers > 0) syscall(SYS_futex, &head().futex_word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::uint64_t ShmAllReduce::ticket() { return head().futex_word; }

// Neither the abort flag nor another ShmAllReduce wakes a sleeping rank.
void ShmAllReduce::sleep(std::uint64_t ticket, double seconds) {
  const bool others = shm_reduces_->advance(this);
  const timespec most{0, static_cast<long>(std::min(seconds, others ? 0.0005 : 0.05) * 1e9)};
  head().sleepers.fetch_add(1);
  syscall(SYS_futex, &head().futex_word, FUTEX_WAIT, static_cast<std::uint32_t>(ticket), &most, nullptr, 0);
  head().sleepers.fetch_sub(1);
}

// Called when all ranks have entered piece i: checks that they made the same call.
void ShmAllReduce::compare(std::uint64_t i) {
  for (int r = 1; r < size_; ++r)
    if (const Call& first = entry(0, i).call, &other = entry(r, i).call; first != other) {
      const std::string text = differing_text(first, r, other);
      abort_flag_.raise(text);
      throw Error(text, std::source_location::current(), ErrorKind::communicator);
    }
}

bool ShmAllReduce::fill() {
  bool last = false;
  while (filled_ < posted()) {
    busy_ = true;
    const std::uint64_t i = filled_;
    Slot& s = slot(i);
    if (s.round != i / slots_) return last;  // an earlier piece still uses the slot
    const Piece& p = piece(i);
    if (p.count && !direct(p.call)) std::memcpy(stage(rank_, i), p.data, p.count * size_of(p.call.type));
    Entry& mine = entry(rank_, i);
    mine.call = p.call;
    mine.token = token_;
    mine.data = p.data;
    mine.number = i + 1;
    ++filled_;  // incremented before anything may throw: this rank arrives once
    if (s.arrived.fetch_add(1) + 1 < size_) continue;
    compare(i);
    s.matched = 1;
    // A small vector is reduced by the last rank to arrive, so the others wake up once, with the result ready.
    if (p.chunks > 1 || p.several || p.ranks > 1)
      wake_waiters();
    else
      last = last || p.chunks == 1;
  }
  busy_ = false;
  return last;
}

void ShmAllReduce::reduce_staged(std::uint64_t i, const Piece& p, int c) {
  const Call& call = p.call;
  const Index at = c * p.chunk * size_of(call.type);
  std::vector<const void*> ins(size_);
  for (int r = 0; r < size_; ++r) ins[r] = stage(r, i) + at;
  void* out = stage(0, i) + at;
  reduce_all({&out, 1}, ins, std::min(p.chunk, p.count - c * p.chunk), call.type, call.op);
}

/// Reads from, or writes to, the data of another rank, from byte `at` on.
void ShmAllReduce::transfer(std::uint64_t i, int r, Index at, void* local, std::size_t bytes, bool write) {
  const Entry& from = entry(r, i);
  // Reads the process's token along with the data, to detect a process that reuses the number of one that has ended.
  std::uint64_t value = from.token.value;
  const iovec here[] = {{local, bytes}, {&value, sizeof value}};
  const iovec there[] = {{from.data + at, bytes}, {const_cast<std::uint64_t*>(from.token.where), sizeof value}};
  const auto moved = write ? process_vm_writev(from.token.process, here, 1, there, 1, 0)
                           : process_vm_readv(from.token.process, here, 2, there, 2, 0);
  const bool all = moved == static_cast<ssize_t>(bytes + (write ? 0 : sizeof value));
  check(all && value == from.token.value, ErrorKind::communicator, name_of(piece(i).call.kind),
        "the memory of rank {} cannot be reached ({}): did its process end?", r,
        [&] { return all ? "another process has its number" : std::strerror(errno); });
}

void ShmAllReduce::reduce_direct(std::uint64_t i, const Piece& p, int c) {
  const Call& call = p.call;
  const Index at = c * p.chunk * size_of(call.type), n = std::min(p.chunk, p.count - c * p.chunk);
  const auto bytes = static_cast<std::size_t>(n * size_of(call.type));
  scratch_.resize(size_ * direct_chunk_bytes);
  std::vector<const void*> ins(size_);
  for (int r = 0; r < size_; ++r) {
    ins[r] = r == rank_ ? p.data + at : scratch_.data() + r * direct_chunk_bytes;
    if (r != rank_) transfer(i, r, at, scratch_.data() + r * direct_chunk_bytes, bytes, false);
  }
  void* out = p.data + at;
  reduce_all({&out, 1}, ins, n, call.type, call.op);
  for (int r = 0; r < size_; ++r)
    if (r != rank_) transfer(i, r, at, out, bytes, true);
}

// A chunk of this rank's block of a reduce-scatter, or the chunk of all blocks of an all-gather.
void ShmAllReduce::read_own(std::uint64_t i, const Piece& p, int c) {
  const Call& call = p.call;
  const Index width = size_of(call.type), at = c * p.chunk * width, n = std::min(p.chunk, p.count - c * p.chunk);
  const Index block = call.count / size_ * width;
  const auto bytes = static_cast<std::size_t>(n * width);
  char* const out = p.x.view().as<char>() + at;
  if (n <= 0) return;
  if (call.kind == CallKind::all_gather) {
    for (int r = 0; r < size_; ++r)
      if (r != rank_) transfer(i, r, at, out + r * block, bytes, false);
    if (out + rank_ * block != p.data + at) std::memcpy(out + rank_ * block, p.data + at, bytes);
    return;
  }
  scratch_.resize(size_ * direct_chunk_bytes);
  std::vector<const void*> ins(size_);
  for (int r = 0; r < size_; ++r) {
    ins[r] = r == rank_ ? p.data + rank_ * block + at : scratch_.data() + r * direct_chunk_bytes;
    if (r != rank_) transfer(i, r, rank_ * block + at, scratch_.data() + r * direct_chunk_bytes, bytes, false);
  }
  void* to = out;
  reduce_all({&to, 1}, ins, n, call.type, call.op);
}

bool ShmAllReduce::reduce() {
  bool moved = false;
  for (std::uint64_t i = drained_; i < filled_; ++i) {
    Slot& s = slot(i);
    if (!s.matched) return moved;
    Piece& p = *pieces_[i - drained_];
    const bool whole = direct(p.call);
    if (whole && head().deserter) return moved;
    for (; p.ranks > 1 && p.taken < p.chunks; moved = true) {
      read_own(i, p, p.taken++);
      if (s.finished.fetch_add(1) + 1 == p.chunks * p.ranks) wake_waiters();
    }
    if (p.ranks > 1) continue;
    while (s.next < p.chunks) {
      const int c = s.next.fetch_add(1);
      if (c >= p.chunks) break;
      if (whole)
        reduce_direct(i, p, c);
      else if (p.count && p.call.kind == CallKind::all_reduce)
        reduce_staged(i, p, c);
      if (s.finished.fetch_add(1) + 1 == p.chunks) wake_waiters();
      moved = true;
    }
  }
  return moved;
}

void ShmAllReduce::copy_out(const Piece& p) {
  if (p.count == 0 || direct(p.call)) return;
  const Index bytes = p.count * size_of(p.call.type);
  if (p.call.kind == CallKind::all_reduce) std::memcpy(p.data, stage(0, drained_), bytes);
  if (p.call.kind != CallKind::all_gather) return;
  for (int r = 0; r < size_; ++r) std::memcpy(p.x.view().as<char>() + r * bytes, stage(r, drained_), bytes);
}

bool ShmAllReduce::drain() {
  bool moved = false;
  for (; drained_ < filled_; ++drained_, moved = true) {
    Slot& s = slot(drained_);
    Piece& p = *pieces_.front();
    if (!s.matched || s.finished < p.chunks * p.ranks) break;
    copy_out(p);
    entry(rank_, drained_).left = drained_ + 1;
    if (s.left.fetch_add(1) + 1 == size_) {
      s.arrived = 0;
      s.matched = 0;
      s.next = 0;
      s.finished = 0;
      s.left = 0;
      s.round.fetch_add(1);
      wake_waiters();
    }
    p.x = p.in = {};
    p.done = true;
    pieces_.pop_front();
  }
  return moved;
}

void ShmAllReduce::advance() {
  bool moved = true;
  while (moved) {
    fill();
    moved = reduce();
    if (drain()) moved = true;
  }
}

// For waits elsewhere: other ranks may wait for this rank to copy in or out. It does not reduce, which would delay the
// waiting thread.
void ShmAllReduce::advance_unless_busy() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  bool last = false;
  do last = fill() || last;
  while (drain());
  if (last) wake_waiters();
}

std::string ShmAllReduce::missing(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  if (number < drained_) return "; all ranks have made this call";
  // Pieces are drained in order, so the first undrained piece blocks this one.
  std::string ranks;
  const bool taken = drained_ == filled_;  // whether an earlier piece still uses the slot
  for (int r = 0; r < size_; ++r) {
    const Entry& its = entry(r, drained_);
    if (taken ? its.left != its.number : its.number != drained_ + 1)
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
  }
  if (ranks.empty()) return "; all ranks have made this call, and one of them stopped during it";
  const bool several = ranks.find(',') != std::string::npos;
  const Piece& next = *pieces_.front();
  const std::string call = next.first < number ? fmt::format(" (in {}, which comes first)", to_string(next.call)) : "";
  return fmt::format(" for rank{} {}{}", several ? "s" : "", ranks, call);
}

struct ShmAllReduce::Waiting : Work::State {
  using Clock = std::chrono::steady_clock;
  Waiting(std::shared_ptr<ShmAllReduce> s, std::shared_ptr<const Piece> p) : shm(std::move(s)), last(std::move(p)) {}
  std::string late(double seconds) override {
    return late_text(fmt::format("{}: rank {} of {} has", to_string(last->call), shm->rank_, shm->size_), seconds,
                     shm->missing(last->first));
  }
  EventCount* events() override { return shm.get(); }
  bool done() override {
    if (last->done) return true;
    {
      std::lock_guard lock(shm->mutex_);
      shm->advance();
    }
    if (last->done) return true;
    shm->shm_reduces_->advance(shm.get());
    if (shm->abort_flag_.on()) return true;
    if (!shm->head().deserter) return false;
    // A rank that leaves because of an error raises the abort flag soon. Its reason is preferred.
    if (deserted == Clock::time_point{}) deserted = Clock::now();
    return Clock::now() - deserted > std::chrono::seconds(1);
  }
  void finish() override {
    if (last->done) return;
    shm->abort_flag_.check(to_string(last->call));
    fail(ErrorKind::communicator, to_string(last->call),
         "rank {} has dropped its communicator while this was under way", shm->head().deserter - 1);
  }
  std::shared_ptr<ShmAllReduce> shm;
  std::shared_ptr<const Piece> last;  // pieces finish in order
  Clock::time_point deserted{};       // time at which a rank without this call was first found
};

std::uint64_t ShmAllReduce::post_call(const Call& call) {
  std::lock_guard lock(mutex_);
  const std::uint64_t number = posted();
  pieces_.push_back(std::make_shared<Piece>());
  pieces_.back()->call = call;
  pieces_.back()->first = number;
  bool last = fill();
  if (drain()) last = fill() || last;
  if (last) wake_waiters();
  return number;
}

Work ShmAllReduce::post(const Call& call, const Tensor& x, const Tensor& in) {
  const bool gathers = call.kind == CallKind::all_gather, scatters = call.kind == CallKind::reduce_scatter;
  const bool whole = direct(call) || gathers;
  const Index width = size_of(call.type), n = gathers || scatters ? call.count / size_ : call.count;
  const Index most = whole ? std::max<Index>(1, n) : shared_piece_bytes / width;
  const Index chunk = gathers && !direct(call) ? n : (whole ? direct_chunk_bytes : chunk_bytes) / width;
  char* const data = n == 0 ? nullptr : (gathers || scatters ? in : x).view().as<char>();
  std::shared_ptr<Piece> last;
  {
    std::lock_guard lock(mutex_);
    const std::uint64_t first = posted();
    for (Index at = 0; at == 0 || at < n; at += most) {
      last = std::make_shared<Piece>();
      last->call = call;
      last->x = x;
      last->in = in;
      last->first = first;
      last->data = data + at * width;
      last->count = std::min(most, n - at);
      last->chunk = chunk;
      last->chunks = static_cast<int>(std::max<Index>(1, (last->count + chunk - 1) / chunk));
      last->several = n > most;
      if (direct(call) && (gathers || scatters)) last->ranks = size_;
      pieces_.push_back(last);
    }
    if (fill() || filled_ < posted() || (!last->several && !direct(call))) advance();
  }
  if (last->done) return {};
  return Work(std::make_shared<Waiting>(shared_from_this(), std::move(last)));
}

}  // namespace trireme
